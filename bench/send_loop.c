/* What the kernel's path alone can take: one datagram, sent again and again.
 *
 * send_loop SOCKET ADDRESS DATA, the last two in hexadecimal; an empty ADDRESS for a socket that
 * needs none. Runs until it is killed; a full queue or buffer does not end it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static size_t from_hex(const char *text, unsigned char *bytes, size_t room)
{
	size_t count = strlen(text) / 2;

	if (count > room)
		exit(2);
	for (size_t i = 0; i < count; i++)
		sscanf(text + 2 * i, "%2hhx", &bytes[i]);
	return count;
}

int main(int argc, char **argv)
{
	struct sockaddr_storage address;
	unsigned char data[65536];

	if (argc != 4)
		return 2;
	int descriptor = atoi(argv[1]);
	socklen_t address_bytes = from_hex(argv[2], (unsigned char *)&address, sizeof address);
	size_t data_bytes = from_hex(argv[3], data, sizeof data);
	for (;;) {
		if (sendto(descriptor, data, data_bytes, 0,
			   address_bytes ? (struct sockaddr *)&address : NULL, address_bytes) < 0 &&
		    errno != ENOBUFS && errno != EAGAIN) {
			perror("sendto");
			return 1;
		}
	}
}
