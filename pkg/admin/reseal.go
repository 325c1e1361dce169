package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/secrets"
)

// ParseKeySource parses the source of an encryption key: a provider, a colon, and a name, such
// as env:OLD_KEY. The name may contain colons, as ARNs do.
func ParseKeySource(text string) (secrets.KeySource, error) {
	provider, source, ok := strings.Cut(text, ":")
	switch provider {
	case secrets.KeyFromEnv, secrets.KeyFromFile, secrets.ProviderSecretsManager, secrets.ProviderParameterStore:
	default:
		ok = false
	}
	if !ok || source == "" {
		return secrets.KeySource{}, fmt.Errorf("%.200q is not a key source: want env:VARIABLE, file:PATH, aws-secrets-manager:NAME "+
			"or aws-parameter-store:NAME", text)
	}
	return secrets.KeySource{Provider: provider, Source: source}, nil
}

// ResealSecrets re-encrypts with the current encryption key all secrets encrypted with an old
// one, as secrets.Sealed.Reseal does. Secrets at AWS are not encrypted with it.
func (c *Cluster) ResealSecrets(ctx context.Context) ([]secrets.Sealing, error) {
	sealed, ok := c.sealed.(*secrets.Sealed)
	if !ok {
		return nil, fmt.Errorf("only secrets of the provider %s are encrypted with an encryption key; AWS secrets are encrypted by KMS",
			secrets.ProviderObjectStorage)
	}
	return sealed.Reseal(ctx)
}
