output "shard" {
  description = "ID of the shard."
  value       = var.shard
}

output "leader_ipv4_address" {
  description = "The leader's IPv4 address, or `null` without `enable_leader_ipv4`."
  value       = local.leader_ipv4
}

output "leader_ipv6_address" {
  description = "The leader's IPv6 address, or `null` without `enable_leader_ipv6`."
  value       = local.leader_ipv6
}

output "registration_addr" {
  description = "Address, as `host:port`, at which operators register."
  value       = "${local.leader_host}:${local.ports.registration}"
}

output "operator_addr" {
  description = "Address, as `host:port`, at which operators and `nstance-admin` reach the leader."
  value       = "${local.leader_host}:${local.ports.operator}"
}

output "config" {
  description = "The shard's config as JSON, as written to the bucket."
  value       = local.config
}

output "server_security_group_id" {
  description = "ID of the servers' security group."
  value       = aws_security_group.server.id
}

output "agent_security_group_id" {
  description = "ID of the instances' security group, for rules that admit your own traffic."
  value       = aws_security_group.agent.id
}

output "autoscaling_group_name" {
  description = "Name of the servers' Auto Scaling group."
  value       = aws_autoscaling_group.server.name
}

output "load_balancers" {
  description = "The load balancers that the module created, by name: `arn`, `dns_name`, `zone_id` and `target_group_arn` of each."
  value = {
    for name, lb in aws_lb.group : name => {
      arn              = lb.arn
      dns_name         = lb.dns_name
      zone_id          = lb.zone_id
      target_group_arn = aws_lb_target_group.group[name].arn
    }
  }
}

locals {
  leader_host = local.leader_ipv4 != null ? local.leader_ipv4 : "[${local.leader_ipv6}]"
}
