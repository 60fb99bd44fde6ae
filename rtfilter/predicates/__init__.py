"""What subscriptions ask for: its meaning, its notations, and the boxes it becomes."""
