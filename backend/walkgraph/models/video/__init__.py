"""Video at the border, as encoded bytes outside and lists of pictures inside."""
