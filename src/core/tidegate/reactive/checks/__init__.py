"""How `tidegate.reactive` is checked: laws, scenarios, planted bugs and strategies."""
