# A VPC and its subnets, or only the missing parts of them.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_vpc" "existing" {
  count = local.new_vpc ? 0 : 1
  id    = var.vpc_id
}

data "aws_subnet" "existing" {
  for_each = { for name, s in var.subnets : name => s if s.cidr == null }
  id       = each.value.id

  lifecycle {
    postcondition {
      condition = lookup(self.tags, "nstance:cluster-id", "") == var.cluster_id
      error_message = join("", [
        "subnets: ${each.key}: id: ${self.id} has nstance:cluster-id ${jsonencode(lookup(self.tags, "nstance:cluster-id", null))}: ",
        "want a subnet that is tagged with ${var.cluster_id}, since the cluster's servers may launch into no other",
      ])
    }
  }
}

locals {
  # Decided by the range, since the ID may be unknown in a plan.
  new_vpc = var.vpc_cidr != null
  vpc = local.new_vpc ? {
    id        = one(aws_vpc.new[*].id)
    cidr      = var.vpc_cidr
    ipv6_cidr = var.enable_ipv6 ? one(aws_vpc.new[*].ipv6_cidr_block) : null
    } : {
    id        = one(data.aws_vpc.existing[*].id)
    cidr      = one(data.aws_vpc.existing[*].cidr_block)
    ipv6_cidr = var.enable_ipv6 ? one(data.aws_vpc.existing[*].ipv6_cidr_block) : null
  }

  new_subnets = { for name, s in var.subnets : name => s if s.cidr != null }

  # All subnets, new and existing, in one form.
  subnets = {
    for name, s in var.subnets : name => {
      id     = s.cidr != null ? aws_subnet.new[name].id : data.aws_subnet.existing[name].id
      vpc_id = local.vpc.id
      zone   = s.cidr != null ? s.zone : data.aws_subnet.existing[name].availability_zone
      cidr   = s.cidr != null ? s.cidr : data.aws_subnet.existing[name].cidr_block
      role   = s.role
      # null where there is no IPv6 range, and known before the subnet exists: a shard needs that in its plan.
      ipv6_cidr = s.cidr == null ? try(coalesce(data.aws_subnet.existing[name].ipv6_cidr_block), null) : (
        s.ipv6_number == null ? null : aws_subnet.new[name].ipv6_cidr_block
      )
    }
  }
}

resource "aws_vpc" "new" {
  count = local.new_vpc ? 1 : 0

  cidr_block                       = var.vpc_cidr
  assign_generated_ipv6_cidr_block = var.enable_ipv6
  # Interface endpoints are found by DNS names.
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(var.tags, { Name = var.name })
}

resource "aws_vpc_ipv4_cidr_block_association" "secondary" {
  for_each = local.new_vpc ? toset(var.vpc_secondary_cidrs) : toset([])

  vpc_id     = local.vpc.id
  cidr_block = each.key
}

resource "aws_subnet" "new" {
  for_each = local.new_subnets

  vpc_id                          = local.vpc.id
  availability_zone               = each.value.zone
  cidr_block                      = each.value.cidr
  ipv6_cidr_block                 = each.value.ipv6_number == null ? null : cidrsubnet(local.vpc.ipv6_cidr, 8, each.value.ipv6_number)
  assign_ipv6_address_on_creation = each.value.ipv6_number != null
  map_public_ip_on_launch         = each.value.role == "public"
  tags                            = merge(var.tags, { Name = "${var.name}-${each.key}", "nstance:cluster-id" = var.cluster_id })

  # A subnet of a range is created after the range, and destroyed before it.
  depends_on = [aws_vpc_ipv4_cidr_block_association.secondary]
}
