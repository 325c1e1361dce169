# The routes of each subnet: through the internet gateway, through a NAT gateway, or neither.

locals {
  by_role = { for role in ["public", "private", "isolated"] : role => { for name, s in local.new_subnets : name => s if s.role == role } }
  with_ipv6 = {
    for role, subnets in local.by_role : role => { for name, s in subnets : name => s if s.ipv6_number != null }
  }

  make_gateway = local.new_vpc && length(local.by_role.public) > 0
  gateway_id   = local.make_gateway ? one(aws_internet_gateway.new[*].id) : var.internet_gateway_id

  # The public subnet with the NAT gateway of a zone is the first by name. The key "all" is the single gateway's.
  public_by_zone = { for name, s in local.by_role.public : s.zone => name... }
  public_first   = [for n, name in sort([for name, s in var.subnets : name if s.role == "public"]) : name if n == 0]
  nat_zones = merge(
    { for name in local.public_first : "all" => name if var.nat == "single" },
    { for zone in toset([for s in local.by_role.private : s.zone]) : zone => local.public_by_zone[zone][0] if var.nat == "per-zone" },
  )
  nat_of = { for name, s in local.by_role.private : name => var.nat == "single" ? "all" : s.zone if var.nat != "none" }
}

resource "aws_internet_gateway" "new" {
  count = local.make_gateway ? 1 : 0

  vpc_id = local.vpc.id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_egress_only_internet_gateway" "new" {
  count = length(local.with_ipv6.private) > 0 ? 1 : 0

  vpc_id = local.vpc.id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_eip" "nat" {
  for_each = local.nat_zones

  domain = "vpc"
  tags   = merge(var.tags, { Name = "${var.name}-nat-${each.key}" })

  # An address can't be reached before there is a gateway.
  depends_on = [aws_internet_gateway.new]
}

resource "aws_nat_gateway" "nat" {
  for_each = local.nat_zones

  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = local.subnets[each.value].id
  tags          = merge(var.tags, { Name = "${var.name}-${each.key}" })

  depends_on = [aws_internet_gateway.new, aws_route.public]
}

# A table for each subnet: changing a route of one subnet changes no other.
resource "aws_route_table" "new" {
  for_each = local.new_subnets

  vpc_id = local.vpc.id
  tags   = merge(var.tags, { Name = "${var.name}-${each.key}" })
}

resource "aws_route_table_association" "new" {
  for_each = local.new_subnets

  subnet_id      = aws_subnet.new[each.key].id
  route_table_id = aws_route_table.new[each.key].id
}

resource "aws_route" "public" {
  for_each = local.by_role.public

  route_table_id         = aws_route_table.new[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = local.gateway_id
}

resource "aws_route" "public_ipv6" {
  for_each = local.with_ipv6.public

  route_table_id              = aws_route_table.new[each.key].id
  destination_ipv6_cidr_block = "::/0"
  gateway_id                  = local.gateway_id
}

resource "aws_route" "private" {
  for_each = local.nat_of

  route_table_id         = aws_route_table.new[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.nat[each.value].id
}

resource "aws_route" "private_ipv6" {
  for_each = local.with_ipv6.private

  route_table_id              = aws_route_table.new[each.key].id
  destination_ipv6_cidr_block = "::/0"
  egress_only_gateway_id      = one(aws_egress_only_internet_gateway.new[*].id)
}
