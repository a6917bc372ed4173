"""`python -m app`: the statehold command."""

from app.cli import main

raise SystemExit(main())
