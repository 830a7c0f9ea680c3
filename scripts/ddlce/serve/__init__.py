"""`ddlce serve`: the channel over HTTP on loopback, for conda clients and for people."""
