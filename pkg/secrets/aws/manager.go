package aws

import (
	"context"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/secrets"
)

// This file is Secrets Manager:
// https://docs.aws.amazon.com/secretsmanager/latest/apireference/

// maxSecret is the maximum length of a value, in bytes.
const maxSecret = secrets.MaxValue

// manager calls Secrets Manager through functions (pkg/awsclient/sdk.go). The service
// recognises a repeated write by its token: if a version with this token and the same value
// exists, the call succeeds without any change, even of the current version. So an attempt is
// simply repeated. Every success contains the secret's ARN.
type manager struct {
	get managerCall[secretsmanager.GetSecretValueInput, secretsmanager.GetSecretValueOutput]
	add managerCall[secretsmanager.CreateSecretInput, secretsmanager.CreateSecretOutput]
	put managerCall[secretsmanager.PutSecretValueInput, secretsmanager.PutSecretValueOutput]
}

type managerCall[In, Out any] func(context.Context, *In, ...func(*secretsmanager.Options)) (*Out, error)

var _ backend = manager{}

func newManager(s awsclient.Session) (manager, error) {
	cfg, err := s.Brief(awsclient.SecretsManager)
	client := secretsmanager.NewFromConfig(cfg)
	return manager{client.GetSecretValue, client.CreateSecret, client.PutSecretValue}, err
}

// ofManager limits a Secrets Manager call to one attempt.
func ofManager(o *secretsmanager.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, nil) }

// value takes a name or an ARN. Secrets stored by hand are usually text.
func (m manager) value(ctx context.Context, name string) ([]byte, error) {
	out, err := m.get(ctx, &secretsmanager.GetSecretValueInput{SecretId: &name})
	switch {
	case awsclient.Coded(err, "ResourceNotFoundException"):
		return nil, errAbsent
	case err == nil && len(out.SecretBinary) > 0:
		return out.SecretBinary, replied("GetSecretValue", out.ARN != nil, nil)
	case err != nil:
		return nil, replied("GetSecretValue", false, err)
	default:
		text := sdk.ToString(out.SecretString)
		return []byte(text), replied("GetSecretValue", out.ARN != nil && text != "", nil)
	}
}

func (m manager) create(ctx context.Context, name, token string, value []byte, _ bool) (bool, error) {
	in := secretsmanager.CreateSecretInput{Name: &name, ClientRequestToken: &token, SecretBinary: value}
	out, err := m.add(ctx, &in, ofManager)
	if awsclient.Coded(err, "ResourceExistsException") {
		return false, nil
	}
	err = replied("CreateSecret", out != nil && out.ARN != nil, err)
	return err == nil, err
}

func (m manager) replace(ctx context.Context, name, token string, value []byte) error {
	in := secretsmanager.PutSecretValueInput{SecretId: &name, ClientRequestToken: &token, SecretBinary: value}
	out, err := m.put(ctx, &in, ofManager)
	if awsclient.Coded(err, "ResourceNotFoundException") {
		return errAbsent
	}
	return replied("PutSecretValue", out != nil && out.ARN != nil, err)
}
