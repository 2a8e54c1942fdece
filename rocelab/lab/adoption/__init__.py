"""Labs that other tools deployed: found, read and kept in mind, never changed."""
