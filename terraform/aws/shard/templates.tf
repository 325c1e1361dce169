# Templates and groups in the form of the config.

locals {
  # The RunInstances fields of each template. args_json with network interfaces must contain their security groups too.
  args = {
    for name, t in var.templates : name => {
      for k, v in merge({
        ImageId            = t.ami_id != null ? t.ami_id : "{{ index .Image \"${local.image_of[name]}\" }}"
        IamInstanceProfile = { Name = var.agent_profile_name }
        SecurityGroupIds   = contains(keys(jsondecode(t.args_json)), "NetworkInterfaces") ? null : [aws_security_group.agent.id]
        BlockDeviceMappings = [{
          DeviceName = t.root_device
          Ebs = { for k, v in {
            VolumeType          = "gp3"
            VolumeSize          = t.volume_gb
            Encrypted           = true
            KmsKeyId            = t.kms_key_arn
            DeleteOnTermination = true
          } : k => v if v != null }
        }]
        InstanceMarketOptions = t.spot ? { MarketType = "spot" } : null
      }, jsondecode(t.args_json)) : k => v if v != null
    }
  }

  # A template for the server, which fills in the expressions in double braces.
  agent_userdata = {
    for arch in ["amd64", "arm64"] : arch => templatefile("${path.module}/templates/agent.sh.tftpl", {
      package         = lookup(var.agent_packages, arch, null)
      image           = var.agent_image
      report_interval = try(coalesce(var.settings.health.report_interval), "")
    })
  }

  templates = {
    for name, t in var.templates : name => {
      for k, v in {
        tenants       = t.tenants
        kind          = t.kind
        arch          = t.arch
        size          = t.size
        rotation      = t.max_surge == null ? null : { max_surge = t.max_surge }
        instance_type = t.instance_type
        subnet_pool   = t.subnet_pool
        args          = local.args[name]
        vars          = t.vars
        userdata      = t.userdata == null ? { content = local.agent_userdata[t.arch], encoding = "plain" } : t.userdata
        files         = t.files == null ? null : local.files[name]
        require_files = t.require_files
      } : k => v if v != null
    }
  }

  files = {
    for name, t in var.templates : name => {
      for file, f in coalesce(t.files, {}) : file => merge(
        { for k, v in f : k => v if v != null && !contains(["key", "content_json"], k) },
        { for k, v in { key = f.key } : k => { for part, value in v : part => value if value != null } if v != null },
        { for k, v in { content = f.content_json } : k => jsondecode(v) if v != null },
      )
    }
  }

  groups = {
    for tenant, groups in var.groups : tenant => {
      for name, g in groups : name => merge(
        { for k, v in g : k => v if v != null && !contains(["max_surge", "args_json", "on_demand"], k) },
        { for k, v in { rotation = g.max_surge } : k => { max_surge = v } if v != null },
        { for k, v in { args = g.args_json } : k => jsondecode(v) if v != null },
        { for k, v in { on_demand = g.on_demand } : k => { for part, value in v : part => value if value != null } if v != null },
      )
    }
  }
}
