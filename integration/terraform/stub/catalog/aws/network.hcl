resource "aws_vpc" {
  region = true
  tags   = "settled"
  optional {
    assign_generated_ipv6_cidr_block = bool
    enable_dns_support               = bool
    instance_tenancy                 = string
    ipv4_ipam_pool_id                = string
    ipv4_netmask_length              = number
    ipv6_ipam_pool_id                = string
    ipv6_netmask_length              = number
  }
  settled {
    cidr_block                           = string
    enable_dns_hostnames                 = bool
    enable_network_address_usage_metrics = bool
    id                                   = string
    ipv6_cidr_block                      = string
    ipv6_cidr_block_network_border_group = string
  }
  computed {
    arn                       = string
    default_network_acl_id    = string
    default_route_table_id    = string
    default_security_group_id = string
    dhcp_options_id           = string
    ipv6_association_id       = string
    main_route_table_id       = string
    owner_id                  = string
  }
  values {
    id                        = "vpc-${hex(17)}"
    arn                       = arn("ec2", "vpc/${id}")
    default_network_acl_id    = "acl-${hex(17)}"
    default_route_table_id    = "rtb-${hex(17)}"
    default_security_group_id = "sg-${hex(17)}"
    dhcp_options_id           = "dopt-${hex(17)}"
    ipv6_cidr_block           = assign_generated_ipv6_cidr_block == true ? "2001:db8:12ab:3400::/56" : ""
    ipv6_association_id       = assign_generated_ipv6_cidr_block == true ? "vpc-cidr-assoc-${hex(17)}" : ""
    main_route_table_id       = default_route_table_id
    owner_id                  = account()
  }
}

resource "aws_vpc_ipv4_cidr_block_association" {
  region    = true
  force_new = ["cidr_block", "vpc_id"]
  required { vpc_id = string }
  optional {
    ipv4_ipam_pool_id   = string
    ipv4_netmask_length = number
  }
  settled {
    cidr_block = string
    id         = string
  }
  values { id = "vpc-cidr-assoc-${hex(17)}" }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      delete = string
    }
  }
}

data "aws_vpc" {
  region = true
  settled {
    cidr_block      = string
    default         = bool
    dhcp_options_id = string
    id              = string
    state           = string
    tags            = map(string)
  }
  computed {
    arn                  = string
    enable_dns_hostnames = bool
    enable_dns_support   = bool
    instance_tenancy     = string
    ipv6_association_id  = string
    ipv6_cidr_block      = string
    main_route_table_id  = string
    owner_id             = string
  }
  values {
    id                   = "vpc-${hex(17)}"
    arn                  = arn("ec2", "vpc/${id}")
    cidr_block           = "10.0.0.0/16"
    default              = false
    dhcp_options_id      = "dopt-${hex(17)}"
    enable_dns_hostnames = true
    enable_dns_support   = true
    instance_tenancy     = "default"
    ipv6_cidr_block      = "2001:db8:12ab:3400::/56"
    ipv6_association_id  = "vpc-cidr-assoc-${hex(17)}"
    main_route_table_id  = "rtb-${hex(17)}"
    owner_id             = account()
    state                = "available"
  }
  block "filter" {
    nesting = "set"
    required {
      name   = string
      values = set(string)
    }
  }
  block "timeouts" {
    nesting = "single"
    optional { read = string }
  }
}

resource "aws_subnet" {
  region = true
  tags   = "settled"
  required { vpc_id = string }
  optional {
    assign_ipv6_address_on_creation                = bool
    enable_dns64                                   = bool
    enable_lni_at_device_index                     = number
    enable_resource_name_dns_a_record_on_launch    = bool
    enable_resource_name_dns_aaaa_record_on_launch = bool
    ipv6_native                                    = bool
    map_public_ip_on_launch                        = bool
  }
  settled {
    availability_zone                   = string
    availability_zone_id                = string
    cidr_block                          = string
    id                                  = string
    ipv6_cidr_block                     = string
    private_dns_hostname_type_on_launch = string
  }
  computed {
    arn                            = string
    ipv6_cidr_block_association_id = string
    owner_id                       = string
  }
  values {
    id                                  = "subnet-${hex(17)}"
    arn                                 = arn("ec2", "subnet/${id}")
    availability_zone                   = "${region}a"
    owner_id                            = account()
    private_dns_hostname_type_on_launch = "ip-name"
  }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      delete = string
    }
  }
}

# The subnet of an id that ends in b or c is in that zone, any other in the first.
data "aws_subnet" {
  region = true
  settled {
    availability_zone    = string
    availability_zone_id = string
    cidr_block           = string
    default_for_az       = bool
    id                   = string
    ipv6_cidr_block      = string
    state                = string
    tags                 = map(string)
    vpc_id               = string
  }
  computed {
    arn                             = string
    assign_ipv6_address_on_creation = bool
    available_ip_address_count      = number
    ipv6_cidr_block_association_id  = string
    map_public_ip_on_launch         = bool
    owner_id                        = string
  }
  values {
    id                         = "subnet-${hex(17)}"
    arn                        = arn("ec2", "subnet/${id}")
    availability_zone          = "${region}${regex("[bc]?$", id) == "" ? "a" : regex("[bc]$", id)}"
    available_ip_address_count = 251
    cidr_block                 = "10.0.0.0/24"
    default_for_az             = false
    ipv6_cidr_block            = "2001:db8:12ab:3400::/64"
    owner_id                   = account()
    state                      = "available"
    # Every subnet that exists here is of the fixtures' cluster, but for those whose id says otherwise.
    tags = { "nstance:cluster-id" = regex("f?$", id) == "" ? "example" : "other" }
    vpc_id                     = "vpc-${hex(17)}"
  }
  block "filter" {
    nesting = "set"
    required {
      name   = string
      values = set(string)
    }
  }
  block "timeouts" {
    nesting = "single"
    optional { read = string }
  }
}

resource "aws_ec2_subnet_cidr_reservation" {
  region = true
  required {
    cidr_block       = string
    reservation_type = string
    subnet_id        = string
  }
  optional { description = string }
  settled { id = string }
  computed { owner_id = string }
  values {
    id       = "scr-${hex(17)}"
    owner_id = account()
  }
}

resource "aws_network_interface" {
  region = true
  tags   = "settled"
  # Of the addresses it is the first one that can't be changed, and there is one.
  force_new = ["private_ips", "subnet_id"]
  required { subnet_id = string }
  optional {
    description               = string
    ipv6_address_list_enabled = bool
    private_ip_list_enabled   = bool
    source_dest_check         = bool
  }
  settled {
    enable_primary_ipv6 = bool
    id                  = string
    interface_type      = string
    ipv4_prefix_count   = number
    ipv4_prefixes       = set(string)
    ipv6_address_count  = number
    ipv6_address_list   = list(string)
    ipv6_addresses      = set(string)
    ipv6_prefix_count   = number
    ipv6_prefixes       = set(string)
    private_ip          = string
    private_ip_list     = list(string)
    private_ips         = set(string)
    private_ips_count   = number
    security_groups     = set(string)
  }
  computed {
    arn              = string
    mac_address      = string
    outpost_arn      = string
    owner_id         = string
    private_dns_name = string
  }
  values {
    id               = "eni-${hex(17)}"
    arn              = arn("ec2", "network-interface/${id}")
    interface_type   = "interface"
    private_ips      = ["10.0.0.${digits(2)}"]
    ipv6_addresses   = coalesce(ipv6_address_count, 0) == 0 ? [] : ["2001:db8:12ab:3400::${hex(4)}"]
    private_ip       = [for ip in private_ips : ip][0]
    private_ip_list  = [private_ip]
    mac_address      = "0a${regex_replace(hex(10), "(..)", ":$1")}"
    owner_id         = account()
    private_dns_name = "ip-${replace(private_ip, ".", "-")}.${region}.compute.internal"
  }
  block "attachment" {
    nesting = "set"
    required {
      device_index = number
      instance     = string
    }
    settled { network_card_index = number }
    computed { attachment_id = string }
  }
}
