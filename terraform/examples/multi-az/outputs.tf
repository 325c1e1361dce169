output "operator_addrs" {
  description = "Addresses of all shards, in the format of `nstance-admin --servers`."
  value       = join(",", [for zone, s in module.shard : "${zone}=${s.operator_addr}"])
}

output "load_balancers" {
  description = "DNS names of the load balancers, by zone."
  value       = { for zone, s in module.shard : zone => s.load_balancers["www"].dns_name }
}
