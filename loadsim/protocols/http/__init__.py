"""HTTP/1.1 as the protocols over it need it: responses, connections and log-on."""
