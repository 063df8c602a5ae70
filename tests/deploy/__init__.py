"""The page about deploying, run with the real programs: its proxies, its unit for systemd, its container."""
