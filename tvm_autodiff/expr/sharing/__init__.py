"""Parts that an expression contains several times: how large they are, where they are computed."""
