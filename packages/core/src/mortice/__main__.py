"""``python -m mortice``."""

from mortice.cli import main

if __name__ == "__main__":
    main()
