package aws

import (
	"context"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/secrets"
)

// This file is Secrets Manager:
// https://docs.aws.amazon.com/secretsmanager/latest/apireference/

// maxSecret is how long a value may be there, in bytes.
const maxSecret = secrets.MaxValue

// manager calls Secrets Manager. It knows a repeated write by its token: a version of
// this token that is there already with the same value is success, and changes nothing,
// not even which version is current. So an attempt is simply repeated.
type manager struct{ caller }

var _ backend = manager{}

// secretValue is a version of a secret, as far as it is read or written.
type secretValue struct {
	Name               string `json:",omitempty"`
	SecretId           string `json:",omitempty"` //nolint:revive // the API's name of it
	ClientRequestToken string `json:",omitempty"`
	SecretBinary       []byte `json:",omitempty"`
	SecretString       string `json:",omitempty"`
}

// value takes a name or an ARN. What people store is text, mostly.
func (m manager) value(ctx context.Context, name string) ([]byte, error) {
	var out secretValue
	err := m.call(ctx, "GetSecretValue", secretValue{SecretId: name}, &out, false)
	switch {
	case awscall.Coded(err, "ResourceNotFoundException"):
		return nil, errAbsent
	case err != nil:
		return nil, err
	case len(out.SecretBinary) > 0:
		return out.SecretBinary, nil
	default:
		return []byte(out.SecretString), nil
	}
}

func (m manager) create(ctx context.Context, name, token string, value []byte, _ bool) (bool, error) {
	err := m.call(ctx, "CreateSecret", secretValue{Name: name, ClientRequestToken: token, SecretBinary: value}, &struct{}{}, true)
	if awscall.Coded(err, "ResourceExistsException") {
		return false, nil
	}
	return err == nil, err
}

func (m manager) replace(ctx context.Context, name, token string, value []byte) error {
	err := m.call(ctx, "PutSecretValue", secretValue{SecretId: name, ClientRequestToken: token, SecretBinary: value}, &struct{}{}, true)
	if awscall.Coded(err, "ResourceNotFoundException") {
		return errAbsent
	}
	return err
}
