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

// reply is what is looked at in any.
type reply struct {
	ARN string
	secretValue
}

// do makes a call. Every success names the secret.
func (m manager) do(ctx context.Context, action string, in secretValue, once bool) (reply, error) {
	var out reply
	err := m.call(ctx, action, in, &out, once)
	return out, complete(action, out.ARN != "", err)
}

// value takes a name or an ARN. What people store is text, mostly.
func (m manager) value(ctx context.Context, name string) ([]byte, error) {
	out, err := m.do(ctx, "GetSecretValue", secretValue{SecretId: name}, false)
	switch {
	case awscall.Coded(err, "ResourceNotFoundException"):
		return nil, errAbsent
	case err != nil:
		return nil, err
	case len(out.SecretBinary) > 0:
		return out.SecretBinary, nil
	default:
		return []byte(out.SecretString), complete("GetSecretValue", out.SecretString != "", nil)
	}
}

func (m manager) create(ctx context.Context, name, token string, value []byte, _ bool) (bool, error) {
	_, err := m.do(ctx, "CreateSecret", secretValue{Name: name, ClientRequestToken: token, SecretBinary: value}, true)
	if awscall.Coded(err, "ResourceExistsException") {
		return false, nil
	}
	return err == nil, err
}

func (m manager) replace(ctx context.Context, name, token string, value []byte) error {
	_, err := m.do(ctx, "PutSecretValue", secretValue{SecretId: name, ClientRequestToken: token, SecretBinary: value}, true)
	if awscall.Coded(err, "ResourceNotFoundException") {
		return errAbsent
	}
	return err
}
