"""The `tito` command and what its subcommands share: options, console output, errors in one line."""
