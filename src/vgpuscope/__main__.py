"""python -m vgpuscope"""

from vgpuscope.cli import main

raise SystemExit(main())
