# The address that follows the leader. Servers move it themselves, so nothing in this module attaches it: neither the launch template
# nor the group nor a separate resource.

locals {
  with_interface = var.standbys == 0

  # An interface may have more addresses than requested: the first one is the leader's.
  leader_ipv4 = !var.enable_leader_ipv4 ? null : (
    local.with_interface ? tolist(aws_network_interface.leader[0].private_ips)[0] : var.leader_ipv4_address
  )
  leader_ipv6 = !var.enable_leader_ipv6 ? null : (
    local.with_interface ? tolist(aws_network_interface.leader[0].ipv6_addresses)[0] : var.leader_ipv6_address
  )

  # As in the config: "primary" means a secondary address of the leading server's primary interface.
  leader_network = { for k, v in {
    ipv4         = local.leader_ipv4
    ipv6         = local.leader_ipv6
    interface_id = local.with_interface ? aws_network_interface.leader[0].id : "primary"
  } : k => v if v != null }

  reserved = { for k, v in {
    ipv4 = var.leader_ipv4_address == null ? null : "${var.leader_ipv4_address}/32"
    ipv6 = var.leader_ipv6_address == null ? null : "${var.leader_ipv6_address}/128"
  } : k => v if v != null }
}

resource "aws_network_interface" "leader" {
  count = local.with_interface ? 1 : 0

  subnet_id          = var.subnet.id
  description        = "Nstance: the leader of ${var.cluster_id}/${var.shard}"
  security_groups    = [aws_security_group.server.id]
  private_ips        = var.leader_ipv4_address == null ? null : [var.leader_ipv4_address]
  ipv6_addresses     = var.leader_ipv6_address == null ? null : [var.leader_ipv6_address]
  ipv6_address_count = var.enable_leader_ipv6 && var.leader_ipv6_address == null ? 1 : null
  tags               = merge(local.moved, { Name = "${local.name}-leader" })
}

# Reserves the address, so that AWS assigns it to no other interface while no server leads, or while the interface is replaced.
resource "aws_ec2_subnet_cidr_reservation" "leader" {
  for_each = local.reserved

  subnet_id        = var.subnet.id
  cidr_block       = each.value
  reservation_type = "explicit"
  description      = "Nstance: the leader of ${var.cluster_id}/${var.shard}"
}
