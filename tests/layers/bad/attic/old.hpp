// A folder that nobody has given a floor.
