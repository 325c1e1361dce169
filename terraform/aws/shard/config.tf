# The shard's config. A null field would be an error there, so unset fields are omitted.

data "aws_ssm_parameter" "image" {
  for_each = {
    for arch, name in { amd64 = "x86_64", arm64 = "arm64" } : arch => name
    if contains(values(local.image_of), "al2023_${arch}") && !contains(keys(var.images), "al2023_${arch}")
  }
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-${each.key == "amd64" ? "x86_64" : "arm64"}"
}

# The name of the image contains its kernel, which is the default one.
data "aws_ami" "image" {
  for_each = data.aws_ssm_parameter.image
  owners   = ["amazon"]

  filter {
    name   = "image-id"
    values = [each.value.insecure_value]
  }
}

locals {
  # Servers find the newest image with Amazon's default kernel by its name, and fall back to the current image if there is none.
  # Without the kernel in the name the newest image could have a different kernel each day.
  al2023 = {
    for arch, name in { amd64 = "x86_64", arm64 = "arm64" } : "al2023_${arch}" => {
      owners                  = ["amazon"]
      filters                 = [{ name = "name", values = ["al2023-ami-2023.*-${local.kernels[arch]}-${name}"] }]
      sort                    = null
      order                   = null
      fallback                = try(data.aws_ssm_parameter.image[arch].insecure_value, null)
      tenants                 = toset(["*"]) # Amazon's own are public
    }
  }
  kernels = {
    for arch in ["amd64", "arm64"] : arch => try(regex("-(kernel-[0-9]+[.][0-9]+)-", data.aws_ami.image[arch].name)[0], "kernel-6.1")
  }
  images = merge(local.al2023, var.images)

  # Only the images that a template uses, and those in var.images.
  images_used = toset(concat(keys(var.images), [for name, image in local.image_of : image if image != null]))
  image_of    = { for name, t in var.templates : name => t.ami_id != null ? null : coalesce(t.image, "al2023_${t.arch}") }

  server_settings = {
    for k, v in var.settings : k => try({ for name, value in v : name => value if value != null }, v) if v != null
  }

  base = {
    cluster = {
      id = var.cluster_id
      secrets = {
        encryption_key = {
          provider = strcontains(var.encryption_key_arn, ":ssm:") ? "aws-parameter-store" : "aws-secrets-manager"
          source   = var.encryption_key_arn
        }
      }
    }
    server = merge(local.server_settings, {
      provider = {
        kind   = "aws"
        region = local.region
        zone   = var.subnet.zone
      }
      leader_network = local.leader_network
      # A list is a pool for the tenant default only; an object also names the tenants.
      subnet_pools = merge(
        { for name, subnets in var.subnet_pools : name => subnets if !contains(keys(var.subnet_pool_tenants), name) },
        { for name, tenants in var.subnet_pool_tenants : name => { subnets = var.subnet_pools[name], tenants = tenants } },
      )
      dynamic_subnet_pools = var.dynamic_subnet_pools
    })
    tenants = { for tenant in var.tenants : tenant => {} }
    images = {
      for name in local.images_used : name => {
        for k, v in merge({ provider = "aws" }, local.images[name]) : k => v if v != null
      }
    }
    certificates = { for name, c in var.certificates : name => { for k, v in c : k => v if v != null } }
    load_balancers = {
      for name, arns in local.target_group_arns : name => {
        for k, v in { provider = "aws", target_group_arns = arns, tenants = var.load_balancers[name].tenants } : k => v if v != null
      }
    }
    defaults  = { for k, v in { vars = var.vars, tenants = var.vars_tenants } : k => v if v != null }
    templates = local.templates
    groups    = local.groups
  }

  overlay = jsondecode(var.config_json)
  config = jsonencode(merge(local.base, local.overlay, {
    cluster = merge(local.base.cluster, try(local.overlay.cluster, {}))
    server  = merge(local.base.server, try(local.overlay.server, {}))
  }))
}

resource "aws_s3_object" "config" {
  bucket       = var.bucket
  key          = "config/${var.shard}.jsonc"
  content      = local.config
  content_type = "application/json"
}
