package awsclient

import (
	"fmt"
	"strconv"
	"strings"
)

// Service is what the variable that says another URL for one service ends with, as
// AWS's own tools name it: AWS_ENDPOINT_URL_EC2.
type Service string

// The services that are called, but for S3, whose hosts have rules of their own.
const (
	EC2              Service = "EC2"
	LoadBalancing    Service = "ELASTIC_LOAD_BALANCING_V2"
	AutoScaling      Service = "AUTO_SCALING"
	SecretsManager   Service = "SECRETS_MANAGER"
	ParameterStore   Service = "SSM"
	TokenService     Service = "STS"
	endpointVariable         = "AWS_ENDPOINT_URL"
)

// Name is what the service's hosts begin with, and what signatures are for.
func (of Service) Name() string {
	return map[Service]string{
		EC2: "ec2", LoadBalancing: "elasticloadbalancing", AutoScaling: "autoscaling", SecretsManager: "secretsmanager", ParameterStore: "ssm",
		TokenService: "sts",
	}[of]
}

// variable names the service's own URL.
func (of Service) variable() string { return endpointVariable + "_" + string(of) }

// Hosts is which of a region's hosts are called.
type Hosts struct {
	Region    string
	DualStack bool // those that have addresses of IPv6 too
	FIPS      bool // those whose cryptography is validated by FIPS 140
}

// URL returns where a service of the region is, without a slash at the end. A region of no
// partition that is known is an error: the suffix of another partition would lead elsewhere.
// The rules are those of the services' own rule sets, as the SDKs have them.
func (h Hosts) URL(of Service) (string, error) {
	p, ok := PartitionOf(h.Region)
	if !ok {
		return "", fmt.Errorf("%.80q is of no partition of AWS that is known: want a region such as eu-central-1, cn-north-1 or eusc-de-east-1, "+
			"or the URL of the service (%s)", h.Region, of.variable())
	}
	name, suffix := of.Name(), p.Suffix
	// The usual hosts of GovCloud are validated, and most have no other name.
	if h.FIPS && (p.ID != "aws-us-gov" || h.DualStack || of == SecretsManager) {
		name += "-fips"
	}
	// Those of Secrets Manager have addresses of IPv6, and no other name, in the older partitions.
	if h.DualStack && (of != SecretsManager || !strings.HasPrefix(p.Suffix, "amazonaws.com")) {
		suffix = p.DualStack
	}
	return "https://" + name + "." + h.Region + "." + suffix, nil
}

// How AWS's own tools name the two.
const (
	dualStackVariable = "AWS_USE_DUALSTACK_ENDPOINT"
	fipsVariable      = "AWS_USE_FIPS_ENDPOINT"
)

// DualStack reports whether services are called by hosts that have addresses of IPv6 too. set
// is whether the environment says so either way.
func DualStack(getenv func(string) string) (on, set bool, err error) {
	return boolean(getenv, dualStackVariable)
}

// FIPS reports whether services are called by hosts whose cryptography is validated by FIPS 140.
func FIPS(getenv func(string) string) (on bool, err error) {
	on, _, err = boolean(getenv, fipsVariable)
	return on, err
}

func boolean(getenv func(string) string, name string) (on, set bool, err error) {
	text := getenv(name)
	if text == "" {
		return false, false, nil
	}
	on, err = strconv.ParseBool(text)
	if err != nil {
		return false, false, fmt.Errorf("%s is %.80q: want true or false", name, text)
	}
	return on, true, nil
}
