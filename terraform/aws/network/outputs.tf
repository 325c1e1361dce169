output "vpc_id" {
  description = "ID of the VPC."
  value       = local.vpc.id
}

output "vpc_cidr" {
  description = "IPv4 range of the VPC."
  value       = local.vpc.cidr
}

output "vpc_ipv6_cidr" {
  description = "IPv6 range of the VPC, or `null` without `enable_ipv6`."
  value       = local.vpc.ipv6_cidr
}

output "subnets" {
  description = "The subnets, by name: `id`, `vpc_id`, `zone`, `cidr`, `ipv6_cidr` and `role` of each. Available once their routes exist."
  value       = local.subnets

  depends_on = [
    aws_route.private, aws_route.private_ipv6, aws_route.public, aws_route.public_ipv6, aws_route_table_association.new,
    aws_vpc_endpoint.interface, aws_vpc_endpoint.s3, aws_vpc_security_group_ingress_rule.endpoints,
  ]
}

output "subnet_ids" {
  description = "IDs of the subnets, by name. Available once their routes exist."
  value       = { for name, s in local.subnets : name => s.id }

  depends_on = [
    aws_route.private, aws_route.private_ipv6, aws_route.public, aws_route.public_ipv6, aws_route_table_association.new,
    aws_vpc_endpoint.interface, aws_vpc_endpoint.s3, aws_vpc_security_group_ingress_rule.endpoints,
  ]
}

output "subnet_pools" {
  description = "Subnet pools, by zone: for each pool the IDs of its subnets there, ordered by their names. The `subnet_pools` of a shard."
  value = {
    for zone in distinct([for s in local.subnets : s.zone]) : zone => {
      for pool in distinct([for name, s in var.subnets : s.pool if s.pool != null && local.subnets[name].zone == zone]) : pool => [
        for name, s in var.subnets : local.subnets[name].id if s.pool == pool && local.subnets[name].zone == zone
      ]
    }
  }
}
