package awsclient

import (
	"fmt"
	"strings"
)

// Service is the suffix of the variable that overrides a service's URL, as AWS's own tools name
// it: AWS_ENDPOINT_URL_EC2.
type Service string

// Services, except S3, whose hosts follow other rules.
const (
	EC2              Service = "EC2"
	LoadBalancing    Service = "ELASTIC_LOAD_BALANCING_V2"
	AutoScaling      Service = "AUTO_SCALING"
	SecretsManager   Service = "SECRETS_MANAGER"
	ParameterStore   Service = "SSM"
	TokenService     Service = "STS"
	endpointVariable         = "AWS_ENDPOINT_URL"
)

// Name returns the prefix of the service's hosts, which is also its signing name.
func (of Service) Name() string {
	return map[Service]string{
		EC2: "ec2", LoadBalancing: "elasticloadbalancing", AutoScaling: "autoscaling", SecretsManager: "secretsmanager", ParameterStore: "ssm",
		TokenService: "sts",
	}[of]
}

// variable returns the name of the variable that overrides the service's URL.
func (of Service) variable() string { return endpointVariable + "_" + string(of) }

// Hosts selects among a region's hosts.
type Hosts struct {
	Region    string
	DualStack bool // dual-stack hosts (IPv4 and IPv6)
	FIPS      bool // hosts with FIPS 140 validated cryptography
}

// URL returns the URL of a service in the region, without a trailing slash. A region of no
// known partition is an error: another partition's suffix would lead elsewhere. The rules are
// those of the services' endpoint rule sets in the SDKs.
func (h Hosts) URL(of Service) (string, error) {
	p, ok := PartitionOf(h.Region)
	if !ok {
		return "", fmt.Errorf("%.80q is not in a known AWS partition: want a region such as eu-central-1, cn-north-1 or eusc-de-east-1, "+
			"or set the service's URL (%s)", h.Region, of.variable())
	}
	name, suffix := of.Name(), p.Suffix
	// The standard hosts of GovCloud are FIPS hosts, and most have no other name.
	if h.FIPS && (p.ID != "aws-us-gov" || h.DualStack || of == SecretsManager) {
		name += "-fips"
	}
	// Secrets Manager's standard hosts are dual-stack in the older partitions and have no other
	// name.
	if h.DualStack && (of != SecretsManager || !strings.HasPrefix(p.Suffix, "amazonaws.com")) {
		suffix = p.DualStack
	}
	return "https://" + name + "." + h.Region + "." + suffix, nil
}

// Variables of AWS's own tools for the two, as booleans.
const (
	DualStackVariable = "AWS_USE_DUALSTACK_ENDPOINT"
	FIPSVariable      = "AWS_USE_FIPS_ENDPOINT"
)
