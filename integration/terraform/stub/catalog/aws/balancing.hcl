resource "aws_lb" {
  region = true
  tags   = "settled"
  # As a network load balancer has it: it gains subnets where it is, and loses none.
  force_new = ["internal", "load_balancer_type", "name", "name_prefix"]
  grows     = ["subnets"]
  optional {
    dns_record_client_routing_policy = string
    customer_owned_ipv4_pool         = string
    enable_cross_zone_load_balancing = bool
    enable_deletion_protection       = bool
    enable_zonal_shift               = bool
    idle_timeout                     = number
    load_balancer_type               = string
  }
  settled {
    enforce_security_group_inbound_rules_on_private_link_traffic = string
    id                                                           = string
    internal                                                     = bool
    ip_address_type                                              = string
    name                                                         = string
    name_prefix                                                  = string
    security_groups                                              = set(string)
    subnets                                                      = set(string)
  }
  computed {
    arn        = string
    arn_suffix = string
    dns_name   = string
    vpc_id     = string
    zone_id    = string
  }
  values {
    name            = "${coalesce(name_prefix, "tf-lb-")}${digits(26)}"
    arn_suffix      = "${load_balancer_type == "network" ? "net" : "app"}/${name}/${hex(16)}"
    arn             = arn("elasticloadbalancing", "loadbalancer/${arn_suffix}")
    id              = arn
    dns_name        = "${lower(name)}-${hex(16)}.elb.${region}.${suffix()}"
    internal        = false
    ip_address_type = "ipv4"
    vpc_id          = "vpc-${hex(17)}"
    zone_id         = "Z${letters(13)}"
  }
  block "subnet_mapping" {
    nesting = "set"
    required { subnet_id = string }
    optional {
      allocation_id        = string
      ipv6_address         = string
      private_ipv4_address = string
    }
    computed { outpost_id = string }
  }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      delete = string
      update = string
    }
  }
}

resource "aws_lb_target_group" {
  region    = true
  tags      = "settled"
  force_new = ["name", "name_prefix", "port", "protocol", "target_type", "vpc_id"]
  optional {
    deregistration_delay               = string
    lambda_multi_value_headers_enabled = bool
    port                               = number
    protocol                           = string
    proxy_protocol_v2                  = bool
    slow_start                         = number
    target_type                        = string
    vpc_id                             = string
  }
  settled {
    connection_termination = bool
    id                     = string
    ip_address_type        = string
    name                   = string
    name_prefix            = string
    preserve_client_ip     = string
    protocol_version       = string
  }
  computed {
    arn                = string
    arn_suffix         = string
    load_balancer_arns = set(string)
  }
  values {
    name            = "${coalesce(name_prefix, "tf-")}${digits(26)}"
    arn_suffix      = "targetgroup/${name}/${hex(16)}"
    arn             = arn("elasticloadbalancing", arn_suffix)
    id              = arn
    ip_address_type = "ipv4"
  }
  block "health_check" {
    nesting = "list"
    max     = 1
    optional {
      enabled             = bool
      healthy_threshold   = number
      interval            = number
      port                = string
      protocol            = string
      unhealthy_threshold = number
    }
    settled {
      matcher = string
      path    = string
      timeout = number
    }
  }
  block "stickiness" {
    nesting = "list"
    max     = 1
    required { type = string }
    optional {
      cookie_duration = number
      cookie_name     = string
      enabled         = bool
    }
  }
}

resource "aws_lb_listener" {
  region    = true
  tags      = "settled"
  force_new = ["load_balancer_arn"]
  required { load_balancer_arn = string }
  optional {
    alpn_policy     = string
    certificate_arn = string
    port            = number
  }
  settled {
    id                       = string
    protocol                 = string
    ssl_policy               = string
    tcp_idle_timeout_seconds = number
  }
  computed { arn = string }
  values {
    arn      = "${replace(load_balancer_arn, ":loadbalancer/", ":listener/")}/${hex(16)}"
    id       = arn
    protocol = "HTTP"
  }
  block "default_action" {
    nesting = "list"
    min     = 1
    required { type = string }
    optional { target_group_arn = string }
    settled { order = number }
  }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      update = string
    }
  }
}
