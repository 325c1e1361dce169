output "vpc" {
  description = "The VPC: `id`, `cidr`, and `ipv6_cidr`, null without IPv6."
  value       = local.vpc
}

output "subnets" {
  description = "The subnets by name, once they have their routes: `id`, `vpc_id`, `zone`, `cidr`, `ipv6_cidr`, `role`."
  value       = local.subnets

  depends_on = [
    aws_route.private, aws_route.private_ipv6, aws_route.public, aws_route.public_ipv6, aws_route_table_association.new,
    aws_vpc_endpoint.interface, aws_vpc_endpoint.s3, aws_vpc_security_group_ingress_rule.endpoints,
  ]
}

output "subnet_ids" {
  description = "The subnets' ids by name, once they have their routes."
  value       = { for name, s in local.subnets : name => s.id }

  depends_on = [
    aws_route.private, aws_route.private_ipv6, aws_route.public, aws_route.public_ipv6, aws_route_table_association.new,
    aws_vpc_endpoint.interface, aws_vpc_endpoint.s3, aws_vpc_security_group_ingress_rule.endpoints,
  ]
}

output "subnet_pools" {
  description = "By zone, the subnet pools of a shard there: the ids of the subnets with that `pool`, ordered by the subnets' names."
  value = {
    for zone in distinct([for s in local.subnets : s.zone]) : zone => {
      for pool in distinct([for name, s in var.subnets : s.pool if s.pool != null && local.subnets[name].zone == zone]) : pool => [
        for name, s in var.subnets : local.subnets[name].id if s.pool == pool && local.subnets[name].zone == zone
      ]
    }
  }
}
