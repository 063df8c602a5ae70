"""What the gateway costs, beside a proxy that passes bytes on: `python -m benchmarks.gateway`."""
