"""`python -m gateway` and the command `codec-gateway`."""

import gc


def main() -> None:
    """Entry point of the command."""
    # Modules stay loaded, and collecting garbage among them again and again takes a fifth of the start-up time.
    # The command line turns collection back on once everything is loaded.
    gc.disable()
    try:
        from gateway.cli.app import main as run_command
    except KeyboardInterrupt:
        from gateway.cli.exit_codes import INTERRUPTED

        raise SystemExit(INTERRUPTED) from None
    run_command()


if __name__ == "__main__":
    main()
