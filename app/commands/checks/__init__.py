"""What `statehold doctor` looks at, a file for each kind of thing. Nothing here changes anything."""
