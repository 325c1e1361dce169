# The servers' machines. They store nothing that must last: that is in the bucket.

locals {
  containers = var.server_image != null
  user_data = templatefile("${path.module}/templates/server.sh.tftpl", {
    shard          = var.shard
    bucket         = var.bucket
    region         = local.region
    package        = var.server_package
    image          = var.server_image
    asg_image      = var.asg_image
    group          = local.name
    hook           = local.hook
    ipv4           = local.leader_ipv4
    ipv6           = local.leader_ipv6
    with_interface = local.with_interface
    interface_id   = local.with_interface ? aws_network_interface.leader[0].id : ""
    interface_arn  = local.with_interface ? aws_network_interface.leader[0].arn : ""
    interface_mac  = local.with_interface ? aws_network_interface.leader[0].mac_address : ""
    subnet_ipv4    = var.subnet.cidr
    subnet_ipv6    = var.subnet.ipv6_cidr
    # The VPC's router has the first address of each subnet.
    router = local.leader_ipv4 == null ? "" : cidrhost(var.subnet.cidr, 1)
  })
}

resource "aws_launch_template" "server" {
  name                   = "${local.name}-server"
  description            = "Nstance: a server of ${var.cluster_id}/${var.shard}"
  update_default_version = true

  image_id      = var.server_ami_id != null ? var.server_ami_id : data.aws_ssm_parameter.ami[0].insecure_value
  instance_type = var.server_instance_type
  user_data     = base64encode(local.user_data)

  # A stopped machine would never be started again.
  instance_initiated_shutdown_behavior = "terminate"

  iam_instance_profile {
    name = var.server_profile_name
  }

  metadata_options {
    http_endpoint = "enabled"
    http_tokens   = "required"
    # Servers' containers use the host's network. Any other container is one hop further away and can't get the role's credentials.
    http_put_response_hop_limit = 1
  }

  # Only types that begin with t have CPU credits. Standard credits cost nothing extra.
  dynamic "credit_specification" {
    for_each = startswith(var.server_instance_type, "t") ? ["standard"] : []
    content {
      cpu_credits = credit_specification.value
    }
  }

  block_device_mappings {
    device_name = var.server_root_device

    ebs {
      volume_type           = "gp3"
      volume_size           = var.server_volume_gb
      encrypted             = true
      kms_key_id            = var.server_kms_key_arn
      delete_on_termination = true
    }
  }

  # The machine's own interface. The leader's is not attached here: see leader.tf.
  network_interfaces {
    device_index                = 0
    associate_public_ip_address = var.server_public_ip
    ipv6_address_count          = var.enable_leader_ipv6 ? 1 : null
    security_groups             = [aws_security_group.server.id]
    delete_on_termination       = true
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { "nstance:role" = "server" })
  }
  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }
  # The leader's secondary address is assigned to this interface and removed from it.
  tag_specifications {
    resource_type = "network-interface"
    tags          = local.moved
  }

  tags = local.tags

  lifecycle {
    precondition {
      condition     = length(local.user_data) <= 16384
      error_message = "server: the user data exceeds 16384 characters, the limit of EC2"
    }
  }
}
