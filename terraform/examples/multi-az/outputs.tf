output "operator_addrs" {
  description = "Where each shard is operated, as `nstance-admin --servers` takes it."
  value       = join(",", [for zone, s in module.shard : "${zone}=${s.operator_addr}"])
}

output "load_balancers" {
  description = "The names of the load balancers by zone."
  value       = { for zone, s in module.shard : zone => s.load_balancers["www"].dns_name }
}
