resource "aws_internet_gateway" {
  region = true
  tags   = "settled"
  settled {
    id     = string
    vpc_id = string
  }
  computed {
    arn      = string
    owner_id = string
  }
  values {
    id       = "igw-${hex(17)}"
    arn      = arn("ec2", "internet-gateway/${id}")
    owner_id = account()
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

resource "aws_egress_only_internet_gateway" {
  region = true
  tags   = "settled"
  required { vpc_id = string }
  settled { id = string }
  values { id = "eigw-${hex(17)}" }
}

resource "aws_eip" {
  region = true
  tags   = "settled"
  optional {
    address                   = string
    associate_with_private_ip = string
    customer_owned_ipv4_pool  = string
  }
  settled {
    domain               = string
    id                   = string
    instance             = string
    network_border_group = string
    network_interface    = string
    public_ipv4_pool     = string
  }
  computed {
    allocation_id  = string
    arn            = string
    association_id = string
    private_dns    = string
    private_ip     = string
    public_dns     = string
    public_ip      = string
  }
  values {
    id                   = "eipalloc-${hex(17)}"
    allocation_id        = id
    arn                  = arn("ec2", "elastic-ip/${id}")
    domain               = "vpc"
    network_border_group = region
    public_ip            = "203.0.113.${digits(2)}"
    public_ipv4_pool     = "amazon"
  }
  block "timeouts" {
    nesting = "single"
    optional {
      delete = string
      read   = string
      update = string
    }
  }
}

resource "aws_nat_gateway" {
  region = true
  tags   = "settled"
  optional {
    allocation_id     = string
    connectivity_type = string
    subnet_id         = string
  }
  settled {
    id                                 = string
    private_ip                         = string
    secondary_allocation_ids           = set(string)
    secondary_private_ip_address_count = number
    secondary_private_ip_addresses     = set(string)
  }
  computed {
    association_id       = string
    network_interface_id = string
    public_ip            = string
  }
  values {
    id                   = "nat-${hex(17)}"
    association_id       = "eipassoc-${hex(17)}"
    network_interface_id = "eni-${hex(17)}"
    private_ip           = "10.0.0.${digits(2)}"
    public_ip            = "203.0.113.${digits(2)}"
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

resource "aws_route_table" {
  region = true
  tags   = "settled"
  required { vpc_id = string }
  settled {
    id               = string
    propagating_vgws = set(string)
  }
  computed {
    arn      = string
    owner_id = string
  }
  values {
    id       = "rtb-${hex(17)}"
    arn      = arn("ec2", "route-table/${id}")
    owner_id = account()
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

resource "aws_route" {
  region = true
  required { route_table_id = string }
  optional {
    carrier_gateway_id          = string
    core_network_arn            = string
    destination_cidr_block      = string
    destination_ipv6_cidr_block = string
    destination_prefix_list_id  = string
    egress_only_gateway_id      = string
    gateway_id                  = string
    local_gateway_id            = string
    nat_gateway_id              = string
    transit_gateway_id          = string
    vpc_endpoint_id             = string
    vpc_peering_connection_id   = string
  }
  settled {
    id                   = string
    network_interface_id = string
  }
  computed {
    instance_id       = string
    instance_owner_id = string
    origin            = string
    state             = string
  }
  values {
    id     = "r-${route_table_id}${digits(10)}"
    origin = "CreateRoute"
    state  = "active"
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

resource "aws_route_table_association" {
  region = true
  required { route_table_id = string }
  optional {
    gateway_id = string
    subnet_id  = string
  }
  settled { id = string }
  values { id = "rtbassoc-${hex(17)}" }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      delete = string
      update = string
    }
  }
}

resource "aws_vpc_endpoint" {
  region = true
  tags   = "settled"
  required { vpc_id = string }
  optional {
    auto_accept                = bool
    resource_configuration_arn = string
    service_name               = string
    service_network_arn        = string
    vpc_endpoint_type          = string
  }
  settled {
    id                  = string
    ip_address_type     = string
    policy              = string
    private_dns_enabled = bool
    route_table_ids     = set(string)
    security_group_ids  = set(string)
    service_region      = string
    subnet_ids          = set(string)
  }
  computed {
    arn                   = string
    cidr_blocks           = list(string)
    dns_entry             = list(object({ dns_name = string, hosted_zone_id = string }))
    network_interface_ids = set(string)
    owner_id              = string
    prefix_list_id        = string
    requester_managed     = bool
    state                 = string
  }
  values {
    id              = "vpce-${hex(17)}"
    arn             = arn("ec2", "vpc-endpoint/${id}")
    ip_address_type = "ipv4"
    owner_id        = account()
    prefix_list_id  = vpc_endpoint_type == "Interface" ? "" : "pl-${hex(8)}"
    state           = "available"
  }
  block "dns_options" {
    nesting = "list"
    max     = 1
    optional { private_dns_only_for_inbound_resolver_endpoint = bool }
    settled { dns_record_ip_type = string }
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

resource "aws_security_group" {
  region = true
  tags   = "settled"
  optional {
    description            = string
    revoke_rules_on_delete = bool
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
    vpc_id      = string
  }
  computed {
    arn      = string
    owner_id = string
  }
  values {
    id       = "sg-${hex(17)}"
    name     = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    arn      = arn("ec2", "security-group/${id}")
    owner_id = account()
    vpc_id   = "vpc-${hex(17)}"
  }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      delete = string
    }
  }
}

resource "aws_vpc_security_group_ingress_rule" {
  region = true
  tags   = "computed"
  required {
    ip_protocol       = string
    security_group_id = string
  }
  optional {
    cidr_ipv4                    = string
    cidr_ipv6                    = string
    description                  = string
    from_port                    = number
    prefix_list_id               = string
    referenced_security_group_id = string
    to_port                      = number
  }
  computed {
    arn                    = string
    id                     = string
    security_group_rule_id = string
  }
  values {
    id                     = "sgr-${hex(17)}"
    arn                    = arn("ec2", "security-group-rule/${id}")
    security_group_rule_id = id
  }
}

resource "aws_vpc_security_group_egress_rule" {
  region = true
  tags   = "computed"
  required {
    ip_protocol       = string
    security_group_id = string
  }
  optional {
    cidr_ipv4                    = string
    cidr_ipv6                    = string
    description                  = string
    from_port                    = number
    prefix_list_id               = string
    referenced_security_group_id = string
    to_port                      = number
  }
  computed {
    arn                    = string
    id                     = string
    security_group_rule_id = string
  }
  values {
    id                     = "sgr-${hex(17)}"
    arn                    = arn("ec2", "security-group-rule/${id}")
    security_group_rule_id = id
  }
}

data "aws_vpc_endpoint_service" {
  region = true
  optional { service = string }
  settled {
    id           = string
    service_name = string
    service_type = string
  }
  computed {
    acceptance_required        = bool
    arn                        = string
    availability_zones         = set(string)
    base_endpoint_dns_names    = set(string)
    manages_vpc_endpoints      = bool
    owner                      = string
    private_dns_name           = string
    service_id                 = string
    supported_ip_address_types = set(string)
  }
  # The first of the names that are asked for, of those that there are. None is an error here as there. By service alone the
  # provider always takes com.amazonaws.
  values {
    service_type = "Interface"
    service_name = (
      length(filter) == 0 ? "com.amazonaws.${region}.${coalesce(service, "ec2")}" :
      [for n in flatten([for f in filter : [for v in f.values : v]]) : n if contains(endpoint_services(service_type), n)][0]
    )
    service_id   = "vpce-svc-${hex(17)}"
    id           = service_id
    owner        = "amazon"
  }
  block "filter" {
    nesting = "set"
    required {
      name   = string
      values = set(string)
    }
  }
}
