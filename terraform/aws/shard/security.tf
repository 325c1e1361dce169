# Which traffic is admitted. The ports are described in docs/server.md.

resource "aws_security_group" "server" {
  name        = "${local.name}-server"
  description = "Nstance: servers of ${var.cluster_id}/${var.shard}"
  vpc_id      = var.subnet.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-server" })
}

resource "aws_security_group" "agent" {
  name        = "${local.name}-agent"
  description = "Nstance: instances of ${var.cluster_id}/${var.shard}"
  vpc_id      = var.subnet.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-agent" })
}

locals {
  ports          = { election = 8991, registration = 8992, operator = 8993, agent = 8994 }
  operator_ports = { registration = local.ports.registration, operator = local.ports.operator }

  # The health port needs no rule: nstance-asg is on the same machine.
  from_groups = merge(
    {
      servers-election    = { group = aws_security_group.server.id, port = local.ports.election }
      agents-registration = { group = aws_security_group.agent.id, port = local.ports.registration }
      agents-agent        = { group = aws_security_group.agent.id, port = local.ports.agent }
    },
    [for name, id in var.operator_security_group_ids : {
      for service, port in local.operator_ports : "operators-${name}-${service}" => { group = id, port = port }
    }]...
  )
  from_cidrs = merge([for cidr in var.operator_cidrs : {
    for service, port in local.operator_ports : "${cidr}-${service}" => { cidr = cidr, port = port }
  }]...)
}

resource "aws_vpc_security_group_ingress_rule" "server_from_groups" {
  for_each = local.from_groups

  security_group_id            = aws_security_group.server.id
  description                  = each.key
  referenced_security_group_id = each.value.group
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "server_from_cidrs" {
  for_each = local.from_cidrs

  security_group_id = aws_security_group.server.id
  description       = "operators-${each.value.port}"
  cidr_ipv4         = strcontains(each.value.cidr, ":") ? null : each.value.cidr
  cidr_ipv6         = strcontains(each.value.cidr, ":") ? each.value.cidr : null
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  tags              = local.tags
}

# Outbound to AWS, and to the sources of packages and images.
resource "aws_vpc_security_group_egress_rule" "out" {
  for_each = {
    server-ipv4 = { group = aws_security_group.server.id, ipv4 = "0.0.0.0/0", ipv6 = null }
    server-ipv6 = { group = aws_security_group.server.id, ipv4 = null, ipv6 = "::/0" }
    agent-ipv4  = { group = aws_security_group.agent.id, ipv4 = "0.0.0.0/0", ipv6 = null }
    agent-ipv6  = { group = aws_security_group.agent.id, ipv4 = null, ipv6 = "::/0" }
  }

  security_group_id = each.value.group
  cidr_ipv4         = each.value.ipv4
  cidr_ipv6         = each.value.ipv6
  ip_protocol       = "-1"
  tags              = local.tags
}
