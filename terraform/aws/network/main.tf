# A VPC and its subnets, or what is missing of them.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_vpc" "existing" {
  count = local.new_vpc ? 0 : 1
  id    = var.vpc.id
}

data "aws_subnet" "existing" {
  for_each = { for name, s in var.subnets : name => s if s.cidr == null }
  id       = each.value.id
}

locals {
  # Asked of the range, since an id may be of something that is still to be made.
  new_vpc = var.vpc.cidr != null
  vpc = local.new_vpc ? {
    id        = one(aws_vpc.new[*].id)
    cidr      = var.vpc.cidr
    ipv6_cidr = var.vpc.ipv6 ? one(aws_vpc.new[*].ipv6_cidr_block) : null
    } : {
    id        = one(data.aws_vpc.existing[*].id)
    cidr      = one(data.aws_vpc.existing[*].cidr_block)
    ipv6_cidr = var.vpc.ipv6 ? one(data.aws_vpc.existing[*].ipv6_cidr_block) : null
  }

  new_subnets = { for name, s in var.subnets : name => s if s.cidr != null }

  # Every subnet, new or not, as others see it.
  subnets = {
    for name, s in var.subnets : name => {
      id     = s.cidr != null ? aws_subnet.new[name].id : data.aws_subnet.existing[name].id
      vpc_id = local.vpc.id
      zone   = s.cidr != null ? s.zone : data.aws_subnet.existing[name].availability_zone
      cidr   = s.cidr != null ? s.cidr : data.aws_subnet.existing[name].cidr_block
      role   = s.role
      # null, and known before there is a subnet, where there is none: a shard asks for that in its plan.
      ipv6_cidr = s.cidr == null ? try(coalesce(data.aws_subnet.existing[name].ipv6_cidr_block), null) : (
        s.ipv6_number == null ? null : aws_subnet.new[name].ipv6_cidr_block
      )
    }
  }
}

resource "aws_vpc" "new" {
  count = local.new_vpc ? 1 : 0

  cidr_block                       = var.vpc.cidr
  assign_generated_ipv6_cidr_block = var.vpc.ipv6
  # Endpoints are found by names.
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(var.tags, { Name = var.name })
}

resource "aws_vpc_ipv4_cidr_block_association" "secondary" {
  for_each = local.new_vpc ? toset(var.vpc.secondary_cidrs) : toset([])

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
  tags                            = merge(var.tags, { Name = "${var.name}-${each.key}" })

  # A subnet of a range comes after the range, and goes before it.
  depends_on = [aws_vpc_ipv4_cidr_block_association.secondary]
}
