"""What the library promises, tried at every point where it could break."""
