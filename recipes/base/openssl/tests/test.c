/* SHA-256 of "abc" (FIPS 180-4, example 1), and a TLS context with the default certificates. */
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  static const unsigned char want[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea};
  unsigned char got[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (!EVP_Digest("abc", 3, got, &size, EVP_sha256(), NULL) || size != 32) return 1;
  if (memcmp(got, want, sizeof want) != 0) return 2;
  SSL_CTX *context = SSL_CTX_new(TLS_client_method());
  if (!context || !SSL_CTX_set_default_verify_paths(context)) return 3;
  X509_STORE *store = SSL_CTX_get_cert_store(context);
  int count = sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
  printf("%s: %d root certificates\n", OpenSSL_version(OPENSSL_VERSION), count);
  SSL_CTX_free(context);
  return count > 50 ? 0 : 4;
}
