"""The whole lab brought up, looked at, rehearsed and taken down, with Docker and without."""
