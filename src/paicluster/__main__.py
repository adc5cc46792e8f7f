from paicluster.cli import main

raise SystemExit(main())
