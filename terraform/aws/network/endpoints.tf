# Endpoints through which subnets reach AWS without internet access. The one for S3 is free, so every new subnet uses it.

locals {
  isolated = { for name, s in var.subnets : name => s if s.role == "isolated" }
  services = var.interface_endpoints != null ? var.interface_endpoints : (
    length(local.isolated) > 0 ? toset(["ec2", "secretsmanager", "autoscaling"]) : toset([])
  )

  # Names of services begin with com.amazonaws. In China, the European Sovereign Cloud and other partitions, some begin with the
  # partition's domain instead (cn.com.amazonaws.cn-north-1.ec2, but com.amazonaws.cn-north-1.s3). There is no rule, so EC2 is queried.
  services_by_name = contains(["aws", "aws-us-gov"], data.aws_partition.current.partition)
  services_wanted = merge(
    { for name in ["s3"] : "gateway-s3" => { name = name, type = "Gateway" } if length(local.new_subnets) > 0 },
    { for name in local.services : "interface-${name}" => { name = name, type = "Interface" } },
  )
  service_names = {
    for key, s in local.services_wanted : key => (
      local.services_by_name ? "com.amazonaws.${data.aws_region.current.region}.${s.name}" : data.aws_vpc_endpoint_service.wanted[key].service_name
    )
  }

  # The services' DNS names resolve to the endpoints in the whole VPC, so all of its ranges are admitted. The first range has a fixed
  # key, since it may be unknown in a plan.
  ranges = merge({ first = local.vpc.cidr }, { for cidr in var.vpc_secondary_cidrs : cidr => cidr })

  # An endpoint can only be in one subnet of each zone.
  isolated_by_zone = { for name in keys(local.isolated) : local.subnets[name].zone => name... }
  endpoint_subnets = [for names in local.isolated_by_zone : local.subnets[names[0]].id]
}

data "aws_vpc_endpoint_service" "wanted" {
  for_each = local.services_by_name ? {} : local.services_wanted

  service_type = each.value.type

  filter {
    name = "service-name"
    values = [
      for prefix in distinct(["com.amazonaws", data.aws_partition.current.reverse_dns_prefix]) :
      "${prefix}.${data.aws_region.current.region}.${each.value.name}"
    ]
  }
}

resource "aws_vpc_endpoint" "s3" {
  count = length(local.new_subnets) > 0 ? 1 : 0

  vpc_id            = local.vpc.id
  service_name      = local.service_names["gateway-s3"]
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for t in aws_route_table.new : t.id]
  tags              = merge(var.tags, { Name = "${var.name}-s3" })
}

resource "aws_vpc_endpoint" "interface" {
  for_each = local.services

  vpc_id              = local.vpc.id
  service_name        = local.service_names["interface-${each.key}"]
  vpc_endpoint_type   = "Interface"
  subnet_ids          = local.endpoint_subnets
  security_group_ids  = [one(aws_security_group.endpoints[*].id)]
  private_dns_enabled = true
  tags                = merge(var.tags, { Name = "${var.name}-${each.key}" })

  lifecycle {
    precondition {
      condition     = length(local.isolated) > 0
      error_message = "interface_endpoints: want an isolated subnet beside ${each.key}: endpoints are put into those"
    }
  }
}

resource "aws_security_group" "endpoints" {
  count = length(local.services) > 0 ? 1 : 0

  name        = "${var.name}-endpoints"
  description = "Nstance: endpoints of AWS services"
  vpc_id      = local.vpc.id
  tags        = merge(var.tags, { Name = "${var.name}-endpoints" })
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  for_each = { for name, cidr in local.ranges : name => cidr if length(local.services) > 0 }

  security_group_id = one(aws_security_group.endpoints[*].id)
  description       = "HTTPS from the VPC"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}
