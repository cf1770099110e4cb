//! Name rules: DNS labels and subdomains, label keys and values, qualified names, generateName.
