from unseen.cli import main

main()
