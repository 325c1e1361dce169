output "shard" {
  description = "Id of the shard."
  value       = var.shard
}

output "leader_ipv4" {
  description = "The leader's IPv4 address; null without one."
  value       = local.leader_ipv4
}

output "leader_ipv6" {
  description = "The leader's IPv6 address; null without one."
  value       = local.leader_ipv6
}

output "registration_addr" {
  description = "Where operators register: `host:port` of the leader."
  value       = "${local.leader_host}:${local.ports.registration}"
}

output "operator_addr" {
  description = "Where operators and `nstance-admin` dial: `host:port` of the leader."
  value       = "${local.leader_host}:${local.ports.operator}"
}

output "config" {
  description = "The shard's config, as it is in the bucket."
  value       = local.config
}

output "server_security_group_id" {
  description = "The servers' security group."
  value       = aws_security_group.server.id
}

output "agent_security_group_id" {
  description = "The instances' security group, to add what may reach them."
  value       = aws_security_group.agent.id
}

output "autoscaling_group_name" {
  description = "Name of the Auto Scaling group that keeps the servers."
  value       = aws_autoscaling_group.server.name
}

output "load_balancers" {
  description = "The load balancers that were made, by name: `dns_name`, `zone_id`, `arn`, `target_group_arn`."
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
