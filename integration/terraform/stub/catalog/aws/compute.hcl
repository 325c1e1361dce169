resource "aws_launch_template" {
  region  = true
  tags    = "settled"
  changes = ["latest_version", "default_version"]
  optional {
    description                          = string
    disable_api_stop                     = bool
    disable_api_termination              = bool
    ebs_optimized                        = string
    image_id                             = string
    instance_initiated_shutdown_behavior = string
    instance_type                        = string
    kernel_id                            = string
    key_name                             = string
    ram_disk_id                          = string
    security_group_names                 = set(string)
    update_default_version               = bool
    user_data                            = string
    vpc_security_group_ids               = set(string)
  }
  settled {
    default_version = number
    id              = string
    name            = string
    name_prefix     = string
  }
  computed {
    arn            = string
    latest_version = number
  }
  values {
    id              = "lt-${hex(17)}"
    name            = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    arn             = arn("ec2", "launch-template/${id}")
    latest_version  = revision
    default_version = update_default_version == true ? revision : 1
  }
  block "block_device_mappings" {
    nesting = "list"
    optional {
      device_name  = string
      no_device    = string
      virtual_name = string
    }
    block "ebs" {
      nesting = "list"
      max     = 1
      optional {
        delete_on_termination = string
        encrypted             = string
        kms_key_id            = string
        snapshot_id           = string
      }
      settled {
        iops        = number
        throughput  = number
        volume_size = number
        volume_type = string
      }
    }
  }
  block "capacity_reservation_specification" {
    nesting = "list"
    max     = 1
    optional { capacity_reservation_preference = string }
  }
  block "cpu_options" {
    nesting = "list"
    max     = 1
    optional {
      amd_sev_snp      = string
      core_count       = number
      threads_per_core = number
    }
  }
  block "credit_specification" {
    nesting = "list"
    max     = 1
    optional { cpu_credits = string }
  }
  block "hibernation_options" {
    nesting = "list"
    max     = 1
    required { configured = bool }
  }
  block "iam_instance_profile" {
    nesting = "list"
    max     = 1
    optional {
      arn  = string
      name = string
    }
  }
  block "instance_market_options" {
    nesting = "list"
    max     = 1
    optional { market_type = string }
    block "spot_options" {
      nesting = "list"
      max     = 1
      optional {
        block_duration_minutes         = number
        instance_interruption_behavior = string
        max_price                      = string
        spot_instance_type             = string
      }
      settled { valid_until = string }
    }
  }
  block "maintenance_options" {
    nesting = "list"
    max     = 1
    optional { auto_recovery = string }
  }
  block "metadata_options" {
    nesting = "list"
    max     = 1
    settled {
      http_endpoint               = string
      http_protocol_ipv6          = string
      http_put_response_hop_limit = number
      http_tokens                 = string
      instance_metadata_tags      = string
    }
  }
  block "monitoring" {
    nesting = "list"
    max     = 1
    optional { enabled = bool }
  }
  block "network_interfaces" {
    nesting = "list"
    optional {
      associate_carrier_ip_address = string
      associate_public_ip_address  = string
      delete_on_termination        = string
      description                  = string
      device_index                 = number
      interface_type               = string
      ipv4_address_count           = number
      ipv4_addresses               = set(string)
      ipv4_prefix_count            = number
      ipv4_prefixes                = set(string)
      ipv6_address_count           = number
      ipv6_addresses               = set(string)
      ipv6_prefix_count            = number
      ipv6_prefixes                = set(string)
      network_card_index           = number
      network_interface_id         = string
      primary_ipv6                 = string
      private_ip_address           = string
      security_groups              = set(string)
      subnet_id                    = string
    }
  }
  block "placement" {
    nesting = "list"
    max     = 1
    optional {
      affinity                = string
      availability_zone       = string
      group_name              = string
      host_id                 = string
      host_resource_group_arn = string
      partition_number        = number
      spread_domain           = string
      tenancy                 = string
    }
  }
  block "private_dns_name_options" {
    nesting = "list"
    max     = 1
    optional {
      enable_resource_name_dns_a_record    = bool
      enable_resource_name_dns_aaaa_record = bool
      hostname_type                        = string
    }
  }
  block "tag_specifications" {
    nesting = "list"
    optional {
      resource_type = string
      tags          = map(string)
    }
  }
}

resource "aws_autoscaling_group" {
  region    = true
  force_new = ["initial_lifecycle_hook", "name", "name_prefix"]
  required {
    max_size = number
    min_size = number
  }
  optional {
    capacity_rebalance               = bool
    context                          = string
    default_instance_warmup          = number
    desired_capacity_type            = string
    enabled_metrics                  = set(string)
    force_delete                     = bool
    force_delete_warm_pool           = bool
    health_check_grace_period        = number
    ignore_failed_scaling_activities = bool
    launch_configuration             = string
    max_instance_lifetime            = number
    metrics_granularity              = string
    min_elb_capacity                 = number
    placement_group                  = string
    protect_from_scale_in            = bool
    suspended_processes              = set(string)
    termination_policies             = list(string)
    wait_for_capacity_timeout        = string
    wait_for_elb_capacity            = number
  }
  settled {
    availability_zones      = set(string)
    default_cooldown        = number
    desired_capacity        = number
    health_check_type       = string
    id                      = string
    load_balancers          = set(string)
    name                    = string
    name_prefix             = string
    service_linked_role_arn = string
    target_group_arns       = set(string)
    vpc_zone_identifier     = set(string)
  }
  computed {
    arn                = string
    predicted_capacity = number
    warm_pool_size     = number
  }
  values {
    name                    = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    id                      = name
    arn                     = arn("autoscaling", "autoScalingGroup:${uuid()}:autoScalingGroupName/${name}")
    default_cooldown        = 300
    desired_capacity        = min_size
    health_check_type       = "EC2"
    service_linked_role_arn = arn("iam", "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling")
  }
  block "availability_zone_distribution" {
    nesting = "list"
    max     = 1
    optional { capacity_distribution_strategy = string }
  }
  block "initial_lifecycle_hook" {
    nesting = "set"
    required {
      lifecycle_transition = string
      name                 = string
    }
    optional {
      heartbeat_timeout       = number
      notification_metadata   = string
      notification_target_arn = string
      role_arn                = string
    }
    settled { default_result = string }
  }
  block "instance_maintenance_policy" {
    nesting = "list"
    max     = 1
    required {
      max_healthy_percentage = number
      min_healthy_percentage = number
    }
  }
  block "instance_refresh" {
    nesting = "list"
    max     = 1
    required { strategy = string }
    optional { triggers = set(string) }
    block "preferences" {
      nesting = "list"
      max     = 1
      optional {
        auto_rollback                = bool
        checkpoint_delay             = string
        checkpoint_percentages       = list(number)
        instance_warmup              = string
        max_healthy_percentage       = number
        min_healthy_percentage       = number
        scale_in_protected_instances = string
        skip_matching                = bool
        standby_instances            = string
      }
    }
  }
  block "launch_template" {
    nesting = "list"
    max     = 1
    settled {
      id      = string
      name    = string
      version = string
    }
  }
  block "tag" {
    nesting = "set"
    required {
      key                 = string
      propagate_at_launch = bool
      value               = string
    }
  }
  block "timeouts" {
    nesting = "single"
    optional {
      delete = string
      update = string
    }
  }
}
