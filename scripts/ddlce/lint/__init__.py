"""`ddlce lint`: what a recipe must have, one named rule each."""
