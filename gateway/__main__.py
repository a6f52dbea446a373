"""`python -m gateway` and the command `codec-gateway`."""

import gc


def main() -> None:
    """Entry point of the command."""
    # Modules are made to stay, and looking for garbage among them, again and again, is a fifth of a start's time.
    # The command line switches it on again when all is loaded.
    gc.disable()
    try:
        from gateway.cli.app import main as run_command
    except KeyboardInterrupt:
        from gateway.cli.exit_codes import INTERRUPTED

        raise SystemExit(INTERRUPTED) from None
    run_command()


if __name__ == "__main__":
    main()
