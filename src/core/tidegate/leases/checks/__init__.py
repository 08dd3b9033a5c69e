"""How `tidegate.leases` is checked: laws, scenarios, planted bugs and strategies."""
