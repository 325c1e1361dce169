# Network load balancers for groups. Servers register the instances with their target groups.

locals {
  balancers = { for name, lb in var.load_balancers : name => lb if lb.port != null }
  target_group_arns = {
    for name, lb in var.load_balancers : name => lb.port == null ? lb.target_group_arns : [aws_lb_target_group.group[name].arn]
  }

  # A rule is for one protocol. Health checks use TCP even if the traffic is UDP.
  protocols = { TCP = ["tcp"], UDP = ["udp"], TCP_UDP = ["tcp", "udp"] }
  forwarded = merge([
    for name, lb in local.balancers : {
      for protocol in local.protocols[lb.protocol] : "${name}-${protocol}" => {
        name = name, protocol = protocol, port = lb.port, target_port = coalesce(lb.target_port, lb.port)
      }
    }
  ]...)
  asked = { for name, lb in local.balancers : name => coalesce(lb.health_port, lb.target_port, lb.port) }
  clients = merge([
    for key, f in local.forwarded : {
      for cidr in local.balancers[f.name].cidrs : "${key}-${cidr}" => merge(f, { cidr = cidr })
    }
  ]...)
}

resource "aws_lb" "group" {
  for_each = local.balancers

  name_prefix        = "nst-"
  load_balancer_type = "network"
  internal           = each.value.internal
  subnets            = each.value.subnet_ids
  security_groups    = [aws_security_group.balancer[each.key].id]
  tags               = merge(local.tags, { Name = "${local.name}-${each.key}" })
}

resource "aws_lb_target_group" "group" {
  for_each = local.balancers

  name_prefix          = "nst-"
  target_type          = "instance"
  protocol             = each.value.protocol
  port                 = coalesce(each.value.target_port, each.value.port)
  vpc_id               = var.subnet.vpc_id
  deregistration_delay = each.value.drain_seconds
  preserve_client_ip   = each.value.preserve_client_ip
  tags                 = merge(local.moved, { Name = "${local.name}-${each.key}" })

  health_check {
    protocol = each.value.health_path == null ? "TCP" : "HTTP"
    port     = tostring(local.asked[each.key])
    path     = each.value.health_path
  }

  # A listener always needs a target group.
  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_lb_listener" "group" {
  for_each = local.balancers

  load_balancer_arn = aws_lb.group[each.key].arn
  protocol          = each.value.protocol
  port              = each.value.port
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.group[each.key].arn
  }
}

resource "aws_security_group" "balancer" {
  for_each = local.balancers

  name        = "${local.name}-lb-${each.key}"
  description = "Nstance: load balancer ${each.key} of ${var.cluster_id}/${var.shard}"
  vpc_id      = var.subnet.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-${each.key}" })
}

resource "aws_vpc_security_group_ingress_rule" "balancer" {
  for_each = local.clients

  security_group_id = aws_security_group.balancer[each.value.name].id
  cidr_ipv4         = strcontains(each.value.cidr, ":") ? null : each.value.cidr
  cidr_ipv6         = strcontains(each.value.cidr, ":") ? each.value.cidr : null
  ip_protocol       = each.value.protocol
  from_port         = each.value.port
  to_port           = each.value.port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "balancer" {
  for_each = local.balancers

  security_group_id            = aws_security_group.balancer[each.key].id
  referenced_security_group_id = aws_security_group.agent.id
  ip_protocol                  = "-1"
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "agent_traffic" {
  for_each = local.forwarded

  security_group_id            = aws_security_group.agent.id
  description                  = each.key
  referenced_security_group_id = aws_security_group.balancer[each.value.name].id
  ip_protocol                  = each.value.protocol
  from_port                    = each.value.target_port
  to_port                      = each.value.target_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "agent_health" {
  # If a rule already admits TCP traffic at the same port, another one would be a duplicate.
  for_each = {
    for name, port in local.asked : name => port
    if !anytrue([for f in local.forwarded : f.name == name && f.protocol == "tcp" && f.target_port == port])
  }

  security_group_id            = aws_security_group.agent.id
  description                  = "${each.key}-health"
  referenced_security_group_id = aws_security_group.balancer[each.key].id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = local.tags
}
