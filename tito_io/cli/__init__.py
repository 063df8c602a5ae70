"""The `tito` command and what its subcommands share: options, console, errors in one line."""
