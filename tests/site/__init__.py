"""Nova's servers with the devices of their worker, on labs/onesite."""
